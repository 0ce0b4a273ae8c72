"""Whether two executions did the same (docs/spec/replay.md): actions, identity, digest, verdict."""
