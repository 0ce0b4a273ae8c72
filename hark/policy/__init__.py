"""What a run may do: TOML in, one frozen table out; and the kernel features it needs."""
