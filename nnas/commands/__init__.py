"""One file per command, over what they share: session, settings, runs, shipping."""
