"""Cases: traces and logs as tables, made here or on Spark."""
