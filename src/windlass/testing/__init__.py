"""What users and this project test with: clocks, drains, fixtures, faults and the simulation."""
