"""Networks: torsos, policies, target and predictor. No training."""
