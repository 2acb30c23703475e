"""What every program shares that runs an experiment: its folder, log, profile, command line."""
