"""What a durable data set is: sample, instance, history, ordering and digest."""
