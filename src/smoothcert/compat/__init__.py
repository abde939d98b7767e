"""The interfaces that people already use, with our certificates behind them."""
