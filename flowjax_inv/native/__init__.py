"""All C and what binds it to JAX: faster on CPUs, needed by nothing; README.md says what is."""
