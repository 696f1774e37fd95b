"""What a person gets to see of finished and unfinished runs; made from the files of runs alone."""
