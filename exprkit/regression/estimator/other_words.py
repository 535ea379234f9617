"""Words of other libraries: their names of losses and parameters, and what a user should write in their place.

In: a name.  Out: the name here, or the end of an error message.
"""

LOSSES = {  # of PySR, SymbolicRegression.jl and others: the name of the loss here
    "mse": "squares",
    "rmse": "squares",
    "L2DistLoss()": "squares",
    "l1": "mae",
    "L1DistLoss()": "mae",
    "HuberLoss()": "huber",
    "HuberLoss(1.0)": "huber",
}
PARAMETERS = {  # of PySR, gplearn, pyoperon and others: the name of the parameter here
    "loss": "elementwise_loss", "loss_function": "elementwise_loss", "metric": "elementwise_loss",
    "generations": "niterations", "max_generations": "niterations", "timeout": "timeout_in_seconds",
    "time_limit": "timeout_in_seconds", "max_evaluations": "max_evals", "max_size": "maxsize", "max_length": "maxsize",
    "seed": "random_state", "procs": "n_jobs", "n_threads": "n_jobs", "parsimony_coefficient": "parsimony",
    "function_set": "binary_operators", "allowed_symbols": "binary_operators",
    "stopping_criteria": "early_stop_condition", "pop_size": "population_size", "n_iter": "niterations",
    "ngen": "niterations", "maxdepth": "maxsize", "max_depth": "maxsize", "max_complexity": "maxsize",
    "functions": "unary_operators", "unary": "unary_operators", "binary": "binary_operators", "workers": "n_jobs",
    "output_directory": "checkpoint", "run_id": "checkpoint", "equation_file": "checkpoint",
    "temp_equation_file": "checkpoint", "gpu": "backend", "device": "backend",
}  # fmt: skip
_SAME = "; n_jobs and random_state are enough: the number of threads changes no result"
_SET_ITSELF = "; leave it out: a search sets this itself"
ABSENT_PARAMETERS = {  # what a user reads who gives a parameter that has no counterpart here
    "crossover_probability": _SET_ITSELF, "p_crossover": _SET_ITSELF,
    "tournament_selection_n": _SET_ITSELF, "tournament_size": _SET_ITSELF, "optimizer_iterations": _SET_ITSELF,
    "ncycles_per_iteration": _SET_ITSELF, "ncyclesperiteration": _SET_ITSELF, "batching": _SET_ITSELF,
    "batch_size": _SET_ITSELF, "turbo": _SET_ITSELF, "precision": _SET_ITSELF,
    "parallelism": _SAME, "multithreading": _SAME, "weights": "; fit(X, y, sample_weight=…) takes them",
    "variable_names": "; the columns of a DataFrame have names", "complexity_of_operators": "; every token counts as 1",
}  # fmt: skip
