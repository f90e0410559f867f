"""The generated documents, each written from the code that it describes; `make docs` runs them all."""
