"""The TLS mediator and the broker, seen from Python."""
