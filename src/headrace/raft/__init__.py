"""The metadata quorum: who leads it, at which epoch, who votes, and the control records that say so."""
