"""Cases: traces as tables, and the engines that answer questions on them (DuckDB here, Spark at scale)."""
