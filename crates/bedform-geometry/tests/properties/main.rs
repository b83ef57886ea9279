//! Compares the crate with simple models: sets of points, and loops over every element.

#[cfg(test)]
mod box_layouts;
#[cfg(test)]
mod box_orders;
#[cfg(test)]
mod coverage;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod projections;
#[cfg(test)]
mod regions;
#[cfg(test)]
mod selections;
#[cfg(test)]
mod strategies;
