"""The BPF sensors on the real kernel."""
