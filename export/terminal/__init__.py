"""What all commands share on a terminal: their parser, one line for a mistake, a progress bar."""
