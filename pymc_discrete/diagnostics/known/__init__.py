"""What is known of elements beside their draws: how probable other values are, and what keeps them away."""
