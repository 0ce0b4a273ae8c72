"""hark-trace as the recorder sees it: the process that answers what must repeat."""
