"""Tables and pictures from the files of runs."""
