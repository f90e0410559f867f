"""What handing the small model's certain part to the large one saves and costs, on live runs of the demo's models."""
