"""Cases: traces as tables, and the engines that query them (DuckDB here, Spark at scale)."""
