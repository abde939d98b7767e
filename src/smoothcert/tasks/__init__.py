"""The tasks: one verb per file, each a function that a notebook can call.

Three files help the verbs: `budget` spends a budget block by block, `survey` forecasts what a run
will cost, and `recorded_subject` loads the model and the data of a run again. `metric` estimates
certified accuracy during training.
"""
