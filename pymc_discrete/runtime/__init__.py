"""What any file may need: checks of arguments, names, settings, what is kept and compiled."""
