"""What end-to-end tests share: starting `hark run`, reading its bundle, finding its processes."""
