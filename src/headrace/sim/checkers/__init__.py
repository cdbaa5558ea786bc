"""Those who watch from outside: each knows one promise, hears what clients sent and were told, and objects where the
two do not go together. None of them looks into a broker, but for the memory bounds."""
