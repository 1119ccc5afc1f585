//! Text, table, csv and folded sinks over reports.
