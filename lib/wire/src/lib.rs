//! Every byte that host and agent share: one version, one place.
