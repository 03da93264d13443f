"""What any file may need: checks of arguments, names, settings, and results and programs that are kept."""
