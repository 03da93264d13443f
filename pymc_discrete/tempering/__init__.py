"""What tempering is made of: a model with its likelihood raised to a power, swaps, schedules."""
