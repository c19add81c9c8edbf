"""What people look at: the dashboard, the Foxglove server and the reports."""
