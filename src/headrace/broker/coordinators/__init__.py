"""coordinators"""
