"""Who may do what. Pure: values in, answers out."""
