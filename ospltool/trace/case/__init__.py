"""Cases: traces and logs as tables, made on this machine or on Spark."""
