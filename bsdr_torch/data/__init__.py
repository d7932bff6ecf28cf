"""Recorded people: readers, the prepared format, splits, DataModules.

In reading order. People in GridWorlds:

- `rollouts`: rollouts in an enumerated world, and their files.
- `grid_people`: the DataModules `SimulatedPeople` and `RecordedPeople`.

People in kitchens, from a file to a batch:

- `compressed`, `pickles`, `frames`, `tables`: the bytes of a file, a pickle as inert data, the columns of a pickled
  DataFrame, and a table whose errors name file, row and field; each uses the one before.
- `recorded_states`, `games`, `mturk`: what one cell says, one recorded game, and all games of a file.
- `packed_games`, `verification`: the games of a kitchen as tensors, and what the simulator says of them.
- `prepared`, `prepare`, `data_card`: the Parquet files, how they come about, and the tables and figures of a set.
- `splits`, `decisions`, `batch_order`: what trains and what tests, decisions with their history, the order of batches.
- `kitchen_people`: the DataModule `KitchenPeople`.

`arrow_files` reads and writes the Parquet and CSV files of both.
"""
