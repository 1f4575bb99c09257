"""What everything stands on: errors, printing, files, numbers as text."""
