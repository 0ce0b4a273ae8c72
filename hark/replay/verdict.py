"""Whether two runs did the same, and where not (docs/spec/replay.md, "Verdict"). Pure."""
