"""The HTTP calls of docs/protocol.md that api answers: wire words, parsing and rendering only."""
