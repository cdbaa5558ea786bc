"""`make demo`: a year of real flights through a Headrace topic, a Spark pipeline, and back, checked and drawn."""
