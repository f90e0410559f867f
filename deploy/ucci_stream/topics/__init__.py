"""Topics made and checked; queries and labels sent; one query asked."""
