"""The command line: one thin module per verb. Heavy imports happen inside the command that needs them."""
