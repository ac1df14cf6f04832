"""What is wrong with a configuration, or with a whole deployment, before anything is started."""
