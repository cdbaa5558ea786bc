"""What simulated worlds are put through, and what must hold whatever happens."""
