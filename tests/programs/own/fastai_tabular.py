import pandas
from fastai.tabular.all import Categorify, Normalize, TabularDataLoaders, accuracy, tabular_learner

rows = 2048
frame = pandas.DataFrame(
    {
        "age": [20 + i % 50 for i in range(rows)],
        "hours": [10 + (i * 7) % 40 for i in range(rows)],
        "work": [f"kind{i % 6}" for i in range(rows)],
        "salary": [("high", "low")[(i * 7 + i % 6) % 2] for i in range(rows)],
    }
)
loaders = TabularDataLoaders.from_df(
    frame,
    y_names="salary",
    cat_names=["work"],
    cont_names=["age", "hours"],
    procs=[Categorify, Normalize],
    bs=64,
)
learner = tabular_learner(loaders, layers=[200, 100], metrics=accuracy)
learner.fit_one_cycle(3, 1e-2)
