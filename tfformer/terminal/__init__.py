"""The terminal interface of all commands: parser, errors in one line, progress bar."""
