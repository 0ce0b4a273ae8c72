"""What the kernel tells: probes, BPF sensors, nflog; ring bytes to records."""
