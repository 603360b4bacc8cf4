"""What the dashboards show, one module for each."""
