"""quorum"""
