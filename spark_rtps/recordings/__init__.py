"""Recordings as topics: MCAP files, ROS 2 bags and captures of a network, as the rows of a live read."""
