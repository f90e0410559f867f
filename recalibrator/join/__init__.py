"""Results and late feedback in; labelled examples, traffic summaries and requests for labels out."""
