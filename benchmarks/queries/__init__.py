"""Parts of the benchmark `query`: fields, readers, measurements, a NetCDF-4 file."""
