"""The conformance test of coordinator protocol v1: a black box for anybody's coordinator, standard library only."""
